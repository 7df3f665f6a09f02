#include "textflag.h"

// No-operations with a displacement that bench/stacks/stacks.c knows.

// func markBegin()
TEXT ·markBegin(SB), NOSPLIT, $0-0
	BYTE $0x0f; BYTE $0x1f; BYTE $0x80; LONG $0x6f766e01
	RET

// func markEnd()
TEXT ·markEnd(SB), NOSPLIT, $0-0
	BYTE $0x0f; BYTE $0x1f; BYTE $0x80; LONG $0x6f766e02
	RET

// func markWrite()
TEXT ·markWrite(SB), NOSPLIT, $0-0
	BYTE $0x0f; BYTE $0x1f; BYTE $0x80; LONG $0x6f766e03
	RET

// func tsc() int64
TEXT ·tsc(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
