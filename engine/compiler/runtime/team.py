"""Threads that run a program's kernels together, in native code from the first kernel to the last.

Every thread walks the same list of steps. A step has a counter from which threads take chunks until there are none, and
a second one that says how many are finished; a thread goes on when all are. Nobody owns a share: a thread that the
system does not let run takes nothing, and the others do not wait for it unless it holds a chunk. Waiting is a brief
spin, then sleep on a futex.

Both counters carry the number of the run (the epoch) in their upper bits. A counter of an earlier run counts as zero,
so nothing is cleared between runs, and a thread that comes late from an earlier run sees a later epoch and leaves.

The leader is the caller's thread; the others are parked in ``worker`` for life and never take Python's lock.
"""

from __future__ import annotations

from engine.compiler.codegen.host import Host

# Bytes: a step is its function, its arguments and its number of chunks; its counters lie on lines of their own.
STEP_BYTES = 32
COUNTER_BYTES = 128
TEAM_BYTES = 512
# Words of the team's block, as byte offsets: the run that is asked for, threads asleep between runs, threads asleep
# within a run and the word they sleep on, and the tables.
GENERATION, IDLE, SLEEPERS, WAKE, STEPS, COUNTERS, SEGMENTS, SPIN, TIMES = 0, 64, 128, 192, 256, 264, 272, 280, 288

# A generation is an epoch and the number of a segment; the last segment number asks workers to leave.
SEGMENT_BITS = 24
STOP = (1 << SEGMENT_BITS) - 1

_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARATION = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.hint(i32)",
}


def team_code(host: Host) -> str:
    """IR of ``run(team, generation, times)``, ``worker(team, seen)`` and ``stop(team, generation, nothing)``.

    ``times`` is null or a table with a place for every step, for the clock in ns when its last chunk was finished; it
    must stay as long as the team.
    """
    architecture = host.triple.split("-")[0]
    return _TEXT.format(
        pause=_PAUSE[architecture],
        pause_declaration=_PAUSE_DECLARATION[architecture],
        futex=_FUTEX[architecture],
        bits=SEGMENT_BITS,
        mask=STOP,
        GENERATION=GENERATION,
        IDLE=IDLE,
        SLEEPERS=SLEEPERS,
        WAKE=WAKE,
        STEPS=STEPS,
        COUNTERS=COUNTERS,
        SEGMENTS=SEGMENTS,
        SPIN=SPIN,
        TIMES=TIMES,
        STEP_BYTES=STEP_BYTES,
        COUNTER_BYTES=COUNTER_BYTES,
    )


_TEXT = """
{pause_declaration}
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)

define internal void @sleep_on(ptr %word, i32 %value) nounwind noinline {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}}

define internal void @wake_all(ptr %word) nounwind noinline {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}}

define internal i64 @now() nounwind noinline {{
  %ts = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 1, ptr %ts)
  %s = load i64, ptr %ts, align 8
  %p = getelementptr i8, ptr %ts, i64 8
  %n = load i64, ptr %p, align 8
  %big = mul i64 %s, 1000000000
  %t = add i64 %big, %n
  ret i64 %t
}}

define internal void @walk(ptr %team, i64 %generation) nounwind noinline {{
entry:
  %epoch = lshr i64 %generation, {bits}
  %segment = and i64 %generation, {mask}
  %base = shl i64 %epoch, {bits}
  %steps.p = getelementptr i8, ptr %team, i64 {STEPS}
  %steps = load ptr, ptr %steps.p, align 8
  %counters.p = getelementptr i8, ptr %team, i64 {COUNTERS}
  %counters = load ptr, ptr %counters.p, align 8
  %segments.p = getelementptr i8, ptr %team, i64 {SEGMENTS}
  %segments = load ptr, ptr %segments.p, align 8
  %spin.p = getelementptr i8, ptr %team, i64 {SPIN}
  %spin = load i64, ptr %spin.p, align 8
  %times.p = getelementptr i8, ptr %team, i64 {TIMES}
  %times = load ptr, ptr %times.p, align 8
  %untimed = icmp eq ptr %times, null
  %sleepers = getelementptr i8, ptr %team, i64 {SLEEPERS}
  %wake = getelementptr i8, ptr %team, i64 {WAKE}
  %first.i = shl i64 %segment, 1
  %first.p = getelementptr i64, ptr %segments, i64 %first.i
  %first = load i64, ptr %first.p, align 8
  %last.p = getelementptr i8, ptr %first.p, i64 8
  %last = load i64, ptr %last.p, align 8
  br label %step

step:
  %i = phi i64 [ %first, %entry ], [ %i.next, %advance ]
  %is.end = icmp uge i64 %i, %last
  br i1 %is.end, label %leave, label %begin

begin:
  %record.o = mul i64 %i, {STEP_BYTES}
  %record = getelementptr i8, ptr %steps, i64 %record.o
  %function = load ptr, ptr %record, align 8
  %arguments.p = getelementptr i8, ptr %record, i64 8
  %arguments = load ptr, ptr %arguments.p, align 8
  %chunks.p = getelementptr i8, ptr %record, i64 16
  %chunks = load i64, ptr %chunks.p, align 8
  %take.o = mul i64 %i, {COUNTER_BYTES}
  %take = getelementptr i8, ptr %counters, i64 %take.o
  %done = getelementptr i8, ptr %take, i64 64
  %all = or i64 %base, %chunks
  br label %try

try:
  %old = load atomic i64, ptr %take monotonic, align 8
  %old.epoch = lshr i64 %old, {bits}
  %is.late = icmp ugt i64 %old.epoch, %epoch
  br i1 %is.late, label %leave, label %current

current:
  %is.mine = icmp eq i64 %old.epoch, %epoch
  %old.count = and i64 %old, {mask}
  %chunk = select i1 %is.mine, i64 %old.count, i64 0
  %is.taken = icmp uge i64 %chunk, %chunks
  br i1 %is.taken, label %wait, label %claim

claim:
  %chunk.next = add i64 %chunk, 1
  %new = or i64 %base, %chunk.next
  %claimed = cmpxchg ptr %take, i64 %old, i64 %new acq_rel monotonic, align 8
  %has = extractvalue {{ i64, i1 }} %claimed, 1
  br i1 %has, label %work, label %try

work:
  call void %function(ptr %arguments, i64 %chunk)
  br i1 %untimed, label %report, label %stamp

stamp:
  %t = call i64 @now()
  %slot = getelementptr i64, ptr %times, i64 %i
  store i64 %t, ptr %slot, align 8
  br label %report

report:
  %was = load atomic i64, ptr %done monotonic, align 8
  %was.epoch = lshr i64 %was, {bits}
  %was.mine = icmp eq i64 %was.epoch, %epoch
  %was.count = and i64 %was, {mask}
  %count = select i1 %was.mine, i64 %was.count, i64 0
  %count.next = add i64 %count, 1
  %now.done = or i64 %base, %count.next
  %reported = cmpxchg ptr %done, i64 %was, i64 %now.done seq_cst monotonic, align 8
  %is.reported = extractvalue {{ i64, i1 }} %reported, 1
  br i1 %is.reported, label %check, label %report

check:
  %is.last = icmp eq i64 %count.next, %chunks
  br i1 %is.last, label %finished, label %try

finished:
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %call, label %wait

call:
  %bumped = atomicrmw add ptr %wake, i32 1 seq_cst, align 4
  call void @wake_all(ptr %wake)
  br label %wait

wait:
  br label %look

look:
  %turn = phi i64 [ 0, %wait ], [ %turn.next, %again ], [ %spin, %slept ]
  %seen = load atomic i64, ptr %done acquire, align 8
  %is.done = icmp uge i64 %seen, %all
  br i1 %is.done, label %advance, label %idle

idle:
  %is.tired = icmp uge i64 %turn, %spin
  br i1 %is.tired, label %doze, label %again

again:
  {pause}
  %turn.next = add i64 %turn, 1
  br label %look

doze:
  %announced = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  %ticket = load atomic i32, ptr %wake seq_cst, align 4
  %recheck = load atomic i64, ptr %done seq_cst, align 8
  %came = icmp uge i64 %recheck, %all
  br i1 %came, label %slept, label %sleep

sleep:
  call void @sleep_on(ptr %wake, i32 %ticket)
  br label %slept

slept:
  %retracted = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %look

advance:
  %i.next = add i64 %i, 1
  br label %step

leave:
  ret void
}}

define i64 @run(ptr %team, i64 %generation, ptr %times) nounwind {{
entry:
  %times.p = getelementptr i8, ptr %team, i64 {TIMES}
  store ptr %times, ptr %times.p, align 8
  %idle = getelementptr i8, ptr %team, i64 {IDLE}
  %untimed = icmp eq ptr %times, null
  br i1 %untimed, label %go, label %timed

timed:
  %t = call i64 @now()
  br label %go

go:
  %start = phi i64 [ 0, %entry ], [ %t, %timed ]
  store atomic i64 %generation, ptr %team seq_cst, align 8
  %asleep = load atomic i32, ptr %idle seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %call, label %do

call:
  call void @wake_all(ptr %team)
  br label %do

do:
  call void @walk(ptr %team, i64 %generation)
  ret i64 %start
}}

define i64 @stop(ptr %team, i64 %generation, ptr %unused) nounwind {{
  store atomic i64 %generation, ptr %team seq_cst, align 8
  call void @wake_all(ptr %team)
  ret i64 0
}}

define void @worker(ptr %team, i64 %first) nounwind {{
entry:
  %idle = getelementptr i8, ptr %team, i64 {IDLE}
  %spin.p = getelementptr i8, ptr %team, i64 {SPIN}
  %spin = load i64, ptr %spin.p, align 8
  br label %listen

listen:
  %last = phi i64 [ %first, %entry ], [ %asked, %work ]
  br label %look

look:
  %turn = phi i64 [ 0, %listen ], [ %turn.next, %again ], [ %spin, %slept ]
  %asked = load atomic i64, ptr %team acquire, align 8
  %is.new = icmp ne i64 %asked, %last
  br i1 %is.new, label %called, label %wait

wait:
  %is.tired = icmp uge i64 %turn, %spin
  br i1 %is.tired, label %doze, label %again

again:
  {pause}
  %turn.next = add i64 %turn, 1
  br label %look

doze:
  %announced = atomicrmw add ptr %idle, i32 1 seq_cst, align 4
  %recheck = load atomic i64, ptr %team seq_cst, align 8
  %came = icmp ne i64 %recheck, %last
  br i1 %came, label %slept, label %sleep

sleep:
  %word = trunc i64 %last to i32
  call void @sleep_on(ptr %team, i32 %word)
  br label %slept

slept:
  %retracted = atomicrmw sub ptr %idle, i32 1 seq_cst, align 4
  br label %look

called:
  %segment = and i64 %asked, {mask}
  %is.stop = icmp eq i64 %segment, {mask}
  br i1 %is.stop, label %leave, label %work

work:
  call void @walk(ptr %team, i64 %asked)
  br label %listen

leave:
  ret void
}}
"""
