/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin for qemu that counts all instructions of the guest by call stack, between marks that
 * the guest sets. It supports guests with one CPU, x86-64.
 *
 *   qemu-system-x86_64 -plugin stacks.so,out=FILE
 *
 * A mark is an instruction without an effect, nopl disp32(%rax): 0f 1f 80 and the displacement.
 * The displacement MARK + 1 begins counting, MARK + 2 ends it, and MARK + 3 writes the counts to
 * FILE and resets them. bench/harness/counter_amd64.s has the marks.
 *
 * The output has a line "instructions address return-address..." for each stack, the innermost
 * address first. The number is decimal, the addresses are hexadecimal. A line "end" follows.
 * bench/stacks.go reads it.
 *
 * qemu translates code in blocks without branches, and calls entered() when the guest enters one.
 * The instruction that ended the previous block shows how the stack has changed. After a call, the
 * address behind the call is pushed. After a return, all frames are popped down to the one with
 * the address to which it returned. If code in user space enters the kernel, the stack is empty.
 * An interrupt in the kernel continues the stack of the code that it interrupted. User space has
 * no stacks: all of it is counted at address 0.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of qemu's plugin interface (qemu-plugin.h, version 1) that this file uses. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id,
						  void (*)(plugin_id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *,
						 void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
						   void (*)(unsigned, void *), int, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* How a block ends. */
enum ends {
	OTHERWISE,
	CALL,
	RETURN
};

/* A translated block. Blocks are never freed: qemu may enter them at any time. */
struct block {
	uint64_t start, behind; /* addresses of its first instruction, and after its last one */
	uint64_t instructions;  /* number */
	enum ends ends;
};

/*
 * A stack: the return addresses from this frame to the root. Frames with the same parent and
 * address are the same frame, so a pointer identifies a stack.
 */
struct frame {
	struct frame *parent;
	uint64_t address;
};

/* The instructions of the block at an address, entered with a stack. */
struct count {
	const struct frame *frame; /* NULL: the slot is free */
	uint64_t address, instructions;
};

enum {
	MARK = 0x6f766e00,
	BEGIN = MARK + 1,
	END,
	WRITE
};
enum {
	SLOTS = 1 << 20 /* of each hash table */
};

/* The hash tables have open addressing: a search goes on to the next slot until one is free. */
static struct frame root; /* the empty stack */
static struct frame *frames[SLOTS];
static struct count counts[SLOTS];
static size_t nframes, ncounts;
static struct frame *top = &root; /* the current stack */
static const struct block *last;  /* the block that was entered last */
static bool counting;
static FILE *out;

static void *must(void *p)
{
	if (!p) {
		fputs("stacks: out of memory\n", stderr);
		exit(1);
	}
	return p;
}

/* slot returns the slot at which a search for the pair begins. */
static size_t slot(const void *p, uint64_t x)
{
	uint64_t h = ((uintptr_t)p ^ x * 0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd;

	return (h ^ h >> 32) % SLOTS;
}

/* room ends qemu if a table with n entries is half full: the guest has fewer stacks. */
static void room(size_t n)
{
	if (n < SLOTS / 2)
		return;
	fputs("stacks: too many stacks\n", stderr);
	exit(1);
}

/* called returns the stack after a call, which will return to the address. */
static struct frame *called(struct frame *parent, uint64_t address)
{
	size_t i = slot(parent, address);

	for (; frames[i]; i = (i + 1) % SLOTS)
		if (frames[i]->parent == parent && frames[i]->address == address)
			return frames[i];
	room(++nframes);
	frames[i] = must(malloc(sizeof(*frames[i])));
	*frames[i] = (struct frame){ parent, address };
	return frames[i];
}

/* returned returns the stack after a return to the address. */
static struct frame *returned(struct frame *from, uint64_t address)
{
	for (struct frame *f = from; f != &root; f = f->parent)
		if (f->address == address)
			return f->parent;
	return from; /* a return of another thread, whose call was not counted */
}

/* add counts instructions of the block at the address, with this stack. */
static void add(const struct frame *frame, uint64_t address, uint64_t instructions)
{
	size_t i = slot(frame, address);

	for (; counts[i].frame; i = (i + 1) % SLOTS)
		if (counts[i].frame == frame && counts[i].address == address)
			break;
	if (!counts[i].frame) {
		room(++ncounts);
		counts[i].frame = frame;
		counts[i].address = address;
	}
	counts[i].instructions += instructions;
}

/* in_kernel reports whether an address is in the upper half, which is the kernel's. */
static bool in_kernel(uint64_t address)
{
	return address >> 63;
}

/* entered is called before the guest executes a block. */
static void entered(unsigned cpu, void *data)
{
	const struct block *b = data;

	(void)cpu;
	if (!counting)
		return;
	if (!in_kernel(b->start) || !last || !in_kernel(last->start))
		top = &root;
	else if (last->ends == CALL)
		top = called(top, last->behind);
	else if (last->ends == RETURN)
		top = returned(top, b->start);
	last = b;
	add(top, in_kernel(b->start) ? b->start : 0, b->instructions);
}

/* begin, end and write_out are called before the guest executes a mark. */
static void begin(unsigned cpu, void *data)
{
	(void)cpu;
	(void)data;
	counting = true;
	last = NULL;
	top = &root;
}

static void end(unsigned cpu, void *data)
{
	(void)cpu;
	(void)data;
	counting = false;
}

static void write_out(unsigned cpu, void *data)
{
	(void)cpu;
	(void)data;
	for (size_t i = 0; i < SLOTS; i++) {
		if (!counts[i].frame)
			continue;
		fprintf(out, "%llu %llx", (unsigned long long)counts[i].instructions,
			(unsigned long long)counts[i].address);
		for (const struct frame *f = counts[i].frame; f != &root; f = f->parent)
			fprintf(out, " %llx", (unsigned long long)f->address);
		fputc('\n', out);
	}
	fputs("end\n", out);
	fflush(out);
	memset(counts, 0, sizeof(counts));
	ncounts = 0;
}

/*
 * ends_by returns how a block ends, given the n bytes of its last instruction. Calls are e8
 * (rel32) and ff /2 (indirect), returns are c3 and c2. Prefixes before the opcode are skipped:
 * segments, sizes, repetitions, and REX (40 to 4f).
 */
static enum ends ends_by(const uint8_t *p, size_t n)
{
	static const uint8_t prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64,
					    0x65, 0x66, 0x67, 0xf2, 0xf3 };

	while (n > 1 && (memchr(prefixes, *p, sizeof(prefixes)) || (*p & 0xf0) == 0x40)) {
		p++;
		n--;
	}
	if (*p == 0xe8 || (*p == 0xff && n > 1 && (p[1] >> 3 & 7) == 2))
		return CALL;
	return *p == 0xc3 || *p == 0xc2 ? RETURN : OTHERWISE;
}

/* mark registers the function of a mark, if the instruction is one. */
static void mark(struct qemu_plugin_insn *insn)
{
	const uint8_t *p = qemu_plugin_insn_data(insn);
	uint32_t which;

	if (qemu_plugin_insn_size(insn) != 7 || p[0] != 0x0f || p[1] != 0x1f || p[2] != 0x80)
		return;
	memcpy(&which, p + 3, sizeof(which));
	if (which >= BEGIN && which <= WRITE)
		qemu_plugin_register_vcpu_insn_exec_cb(insn,
						       which == BEGIN ? begin
						       : which == END ? end
								      : write_out,
						       0, NULL);
}

/* translated is called when qemu has translated a block. */
static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct block *b = must(calloc(1, sizeof(*b)));
	struct qemu_plugin_insn *insn;

	(void)id;
	for (size_t i = 0; i < n; i++)
		mark(qemu_plugin_tb_get_insn(tb, i));
	insn = qemu_plugin_tb_get_insn(tb, n - 1);
	b->start = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
	b->behind = qemu_plugin_insn_vaddr(insn) + qemu_plugin_insn_size(insn);
	b->instructions = n;
	b->ends = ends_by(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
	qemu_plugin_register_vcpu_tb_exec_cb(tb, entered, 0, b);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info,
							       int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fputs("stacks: want out=FILE\n", stderr);
		return 1;
	}
	out = fopen(argv[0] + 4, "w");
	if (!out) {
		perror(argv[0] + 4);
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
