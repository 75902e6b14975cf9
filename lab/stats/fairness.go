package stats

import "gonum.org/v1/gonum/floats"

// Jain is the fairness index of the servers' loads x (SRLB §V-C, Figure 4; Jain, Chiu and
// Hawe, 1984):
//
//	(Σ xᵢ)² / (N · Σ xᵢ²)
//
// 1 when all are alike, 1/N when one server has everything. Servers that are all
// idle are alike: 1.
func Jain(x []float64) float64 {
	squares := floats.Dot(x, x)
	if squares == 0 {
		return 1
	}
	sum := floats.Sum(x)
	return sum * sum / (float64(len(x)) * squares)
}
