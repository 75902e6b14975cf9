/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* constants.bpf.c: never loaded. Each variable keeps its enum in the object's BTF,
 * from which Go's constants are generated (dataplane/internal/constants). */
#include "agent/accept/accept.h"
#include "agent/load/load.h"
#include "edge/types.h"
#include "lb/members.h"
#include "lb/flow_table.h"
#include "lb/service.h"

#define GENERATE(name) enum name generated_##name

GENERATE(limits);
GENERATE(edge_limits);
GENERATE(edge_wire);
GENERATE(edge_message);
GENERATE(edge_way);
GENERATE(function);
GENERATE(sid_flags);
GENERATE(dispatch);
GENERATE(wire);
GENERATE(fragments);
GENERATE(recovery);
GENERATE(counting);
GENERATE(tally_layout);
GENERATE(alias_layout);
GENERATE(acceptance);
GENERATE(measure);
GENERATE(on_full);
GENERATE(owner);
GENERATE(delivery);
GENERATE(argument);
GENERATE(conn_state);
GENERATE(conn_flags);
GENERATE(conn_date);
GENERATE(completeness);
GENERATE(pending_ring);
GENERATE(service_slot);
GENERATE(sender_slots);
GENERATE(bucket_layout);
GENERATE(list_end);
GENERATE(crowding);
GENERATE(hinting);
GENERATE(hinted);
GENERATE(work_term);
GENERATE(work_sharing);
