package weights

import "math"

// ln2 in two parts, so that n·ln2Hi is exact (fdlibm, e_exp.c).
const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
)

// factorials are 1/k!.
var factorials = [15]float64{
	1, 1, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
	1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200,
}

// Exp is eˣ within two units in the last place, 0 below −708 and +Inf above 709.
// math.Exp is assembly on some machines and may be fused on others, so that its
// last bit differs between them; here every product is rounded before it is
// added, which the language then forbids to fuse.
func Exp(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x > 709:
		return math.Inf(1)
	case x < -708:
		return 0
	}
	n := math.Floor(float64(x*math.Log2E) + 0.5)
	hi := x - float64(n*ln2Hi)
	r := hi - float64(n*ln2Lo) // |r| ≤ ½ ln 2
	sum := factorials[len(factorials)-1]
	for k := len(factorials) - 2; k >= 0; k-- { // Taylor by Horner: r¹⁵/15! is under 2⁻⁶³
		sum = factorials[k] + float64(r*sum)
	}
	return math.Ldexp(sum, int(n))
}
