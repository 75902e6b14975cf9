package sim

// Slots hands out places in a slice and takes them back.
type Slots[T any] struct {
	All  []T
	free []int32
}

func (s *Slots[T]) Take(x T) int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		s.All[i] = x
		return i
	}
	s.All = append(s.All, x)
	return int32(len(s.All) - 1)
}

func (s *Slots[T]) Give(i int32) { s.free = append(s.free, i) }

// Spare is the value that the next take replaces, for its memory.
func (s *Slots[T]) Spare() (x T) {
	if n := len(s.free); n > 0 {
		x = s.All[s.free[n-1]]
	}
	return x
}
