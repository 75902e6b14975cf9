package weights

// Kalman tracks a slowly varying number through noisy measurements (HLB
// §IV-B2), the state being its own prediction:
//
//	P̄ = P + Q,  K = P̄ / (P̄ + R),  μ ← μ + K(z − μ),  P ← (1 − K)P̄
//
// The paper prints Q = 0, with which the gain decays to nothing and a server
// that changes its speed late is never noticed (its Figure 23 shows that it is);
// the authors' simulator uses Q = 10⁻⁴.
type Kalman struct{ Mean, Var float64 }

// Update takes the measurement z, of variance r, after a step in which the
// truth may have moved by variance q. It returns the gain K.
func (k *Kalman) Update(z, r, q float64) float64 {
	prior := k.Var + q
	gain := prior / (prior + r)
	k.Mean += float64(gain * (z - k.Mean))
	k.Var = float64(gain * r) // = (1 − K)P̄, without cancellation while P̄ ≫ R
	return gain
}
