/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* ages.h: how long an established entry of a table stays: the sweep removes it afterwards,
 * and a new flow may take its slot before the sweep comes by. Set before loading. */
#pragma once
#include "core/types.h"

const volatile __u64 linger_ns = 10000000000ULL; /* after both closes */
const volatile __u64 idle_ns = 300000000000ULL;	 /* without packets */
/* Without packets, of a TCP connection that is lost with its entry: RFC 5382 REQ-5. */
const volatile __u64 tcp_idle_ns = 7440000000000ULL;
