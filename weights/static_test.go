package weights

import (
	"slices"
	"testing"
)

func TestStaticReturnsWhatIsStated(t *testing.T) {
	s := NewStatic([]float64{3, 0, 1})
	s.Observe(1, Sample{Server: 2, Value: 99})
	if got := s.Weights(2); !slices.Equal(got, []float64{3, 0, 1}) {
		t.Errorf("weights %v, want the stated ones", got)
	}
	s.Leave(0)
	if got := s.Weights(3); !slices.Equal(got, []float64{0, 0, 1}) {
		t.Errorf("weights %v after server 0 left", got)
	}
	s.Join(0)
	if got := s.Weights(3); got[0] != 3 {
		t.Errorf("weight %v of a server that came back, want its own", got[0])
	}
}
