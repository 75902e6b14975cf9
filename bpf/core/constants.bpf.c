/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* constants.bpf.c: never loaded. Each variable keeps its enum in the object's BTF,
 * from which Go's constants are generated (dataplane/internal/constants). */
#include "agent/accept/accept.h"
#include "agent/load/load.h"
#include "lb/choose/choose.h"

enum limits limits;
enum function function;
enum sid_flags sid_flags;
enum dispatch dispatch;
enum wire wire;
enum fragments fragments;
enum acceptance acceptance;
enum measure measure;
enum on_full on_full;
enum owner owner;
