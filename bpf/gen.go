package bpf

// bpf2go compiles each .bpf.c file and generates a Go file: constants with the names of the
// programs, maps and variables, and Go types of the structs in the maps. -type names further types
// for Go. Changed comments in C change the object files, too, because these contain line numbers.

//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" -type sample monitor monitor.bpf.c
//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" -type addr_kind -type service_owner -type network -type frag_owner -type origin gateway gateway.bpf.c
//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" sock sock.bpf.c
//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" gate gate.bpf.c
//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" -type asked -type note -type dry_run explain explain.bpf.c
//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" -type addr lookup lookup.bpf.c
//go:generate go tool bpf2go -cc clang-14 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu" -type nested_reason -type vlan_flag -type device_flag nested nested.bpf.c
