package sim

// slots hands out places in a slice and takes them back.
type slots[T any] struct {
	all  []T
	free []int32
}

func (s *slots[T]) take(x T) int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		s.all[i] = x
		return i
	}
	s.all = append(s.all, x)
	return int32(len(s.all) - 1)
}

func (s *slots[T]) give(i int32) { s.free = append(s.free, i) }

// spare is the value that the next take replaces, for its memory.
func (s *slots[T]) spare() (x T) {
	if n := len(s.free); n > 0 {
		x = s.all[s.free[n-1]]
	}
	return x
}
