/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* files.h: whether a task that sleeps waits for a service's socket, or for a set of files that
 * holds any: then it waits for work. Locked or not, the kernel's memory is only read, by
 * helpers that allow a pointer to be stale. */
#pragma once
#include "work/system_call.h"
#include "work/socket.h"
#include "work/task.h"

#define S_IFMT 0170000
#define S_IFSOCK 0140000

/* The open files of a task. */
struct files {
	struct file **at;
	__u32 count;
};

static __always_inline struct files files_of(struct task_struct *task)
{
	struct fdtable *fdt = task->files->fdt;

	return (struct files){ fdt->fd, fdt->max_fds };
}

static __always_inline struct file *file_at(const struct files *files, __u32 fd)
{
	struct file *file = NULL;

	if (fd < files->count)
		bpf_probe_read_kernel(&file, sizeof(file), files->at + fd);
	return file;
}

/* is_service_socket: a member has a socket with the local port of a service. */
static __always_inline bool is_service_socket(struct file *file)
{
	struct socket *socket;
	struct sock *sk;
	__u16 family;

	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return false;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	return family != AF_UNIX && is_work_port(BPF_CORE_READ(sk, __sk_common.skc_num));
}

/* A search of a set of files. */
struct search {
	struct files files;
	__u64 set; /* address of a pollfd or of bits, in user space */
	struct rb_node *node, *from;
	bool found;
};

#define MOST_POLLED 64

struct polled {
	int fd;
	short events, revents;
};

static long look_at_polled(__u64 i, struct search *s)
{
	struct polled p;

	if (bpf_probe_read_user(&p, sizeof(p), (void *)(s->set + i * sizeof(p))))
		return 1;
	s->found = is_service_socket(file_at(&s->files, p.fd));
	return s->found;
}

#define MOST_SELECTED 1024

static long look_at_selected(__u64 i, struct search *s)
{
	__u8 bits = 0;

	if (bpf_probe_read_user(&bits, sizeof(bits), (void *)(s->set + i / 8)))
		return 1;
	s->found = bits >> i % 8 & 1 && is_service_socket(file_at(&s->files, i));
	return s->found;
}

#define EPOLL_STEPS 1024 /* three for each file at most */

/* look_at_node makes a step through the tree of an epoll's files, in order: a node is looked at
 * when it is reached from above. */
static long look_at_node(__u64 i, struct search *s)
{
	struct rb_node *node = s->node, *parent, *left, *right;
	struct epitem *item = (void *)node - bpf_core_field_offset(struct epitem, rbn);
	unsigned long up;

	if (!node || bpf_core_read(&up, sizeof(up), &node->__rb_parent_color))
		return 1;
	parent = (void *)(up & ~3UL);
	left = BPF_CORE_READ(node, rb_left);
	right = BPF_CORE_READ(node, rb_right);
	if (s->from == parent) {
		s->found = is_service_socket(BPF_CORE_READ(item, ffd.file));
		if (s->found)
			return 1;
		s->node = left ?: right ?: parent;
	} else {
		s->node = s->from == left && right ? right : parent;
	}
	s->from = node;
	return 0;
}

/* search_epoll remembers the answer until the next recount. */
static __always_inline bool search_epoll(struct search *s, struct work_task *w, int fd)
{
	struct file *file = file_at(&s->files, fd);
	struct eventpoll *ep = BPF_CORE_READ(file, private_data);

	s->node = BPF_CORE_READ(ep, rbr.rb_root.rb_node);
	bpf_loop(EPOLL_STEPS, look_at_node, s, 0);
	w->epoll_fd = fd;
	w->epoll_turn = turn_now();
	w->epoll_works = s->found;
	return s->found;
}

/* waits_for_work: a member's task sleeps in this call. */
static __always_inline bool waits_for_work(struct task_struct *task, struct work_task *w,
					   const struct call_made *made)
{
	struct search s = {};

	if (made->call == CALL_TAKES)
		return true;
	if (made->call == CALL_EPOLLS && w->epoll_fd == (int)made->first &&
	    w->epoll_turn == turn_now())
		return w->epoll_works;
	if (made->call == CALL_FUTEX || made->call == CALL_OTHER)
		return false;
	s.files = files_of(task);
	switch (made->call) {
	case CALL_READS:
		return is_service_socket(file_at(&s.files, made->first));
	case CALL_POLLS:
		s.set = made->first;
		bpf_loop(made->second < MOST_POLLED ? made->second : MOST_POLLED, look_at_polled,
			 &s, 0);
		return s.found;
	case CALL_SELECTS:
		s.set = made->second;
		bpf_loop(made->first < MOST_SELECTED ? made->first : MOST_SELECTED,
			 look_at_selected, &s, 0);
		return s.found;
	case CALL_EPOLLS:
		return search_epoll(&s, w, made->first);
	default:
		return false;
	}
}
