package objects

// The compiled objects are committed, so that building Proffer needs no clang. The
// compiler's version is fixed, so that the bytes can be compared. (Debian keeps
// asm/types.h apart for each architecture, hence the two -I.)
//
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type node -type key -type service_key -type service -type server -type sender_line -type tuple -type line -type signer -type signal_key -type block -type sweep -type suspect -type prefix -type next_hop -type defaults LB ../../bpf/lb/lb.bpf.c -- -I../../bpf -O2 -fno-strict-aliasing -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type offering -type load -type reported -type conn -type conn_line -type digest_key -type sweep -type load_change -type remembered -type suspect -type work Agent ../../bpf/agent/agent.bpf.c -- -I../../bpf -O2 -fno-strict-aliasing -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type work_place Work ../../bpf/work/work.bpf.c -- -I../../bpf -O2 -fno-strict-aliasing -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type lane Bench ../../bpf/bench/bench.bpf.c -- -I../../bpf -O2 -fno-strict-aliasing -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go run ../internal/constants ../../bpf
