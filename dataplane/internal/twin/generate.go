// Package twin holds the programs' integer decisions, compiled apart so that tests
// compare them with their twins in Go.
package twin

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -output-suffix= -type hash_in -type hash_out -type act -type accept_in -type accept_out -type offering -type load Twin ../../../bpf/bench/twin.bpf.c -- -I../../../bpf -O2 -fno-strict-aliasing -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
