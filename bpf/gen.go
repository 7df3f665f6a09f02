package bpf

//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" -type reason gateway gateway.bpf.c
