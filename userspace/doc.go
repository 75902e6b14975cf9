// Package userspace runs network functions outside the kernel: a thread for each core of a datapath
// node polls an AF_XDP socket without sleep, as the functions of EdgeBalance (§2) do, so that its CPU
// is 100 % busy whatever the traffic. bpf/edge/functions/user.h gives it the packets and takes them
// back. A function is a file here that implements Function, and a row in topo.
package userspace
