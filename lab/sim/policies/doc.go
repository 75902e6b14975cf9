// Package policies has the simulator's policies, a file each; those that count
// flows or learn are in lab/sim/learned. A program that names policies imports it.
package policies

import _ "proffer/lab/sim/learned"
