// Package backlog holds what one dispatcher knows about the pending rows of the
// jobs table. It decides what to read next and when. The package is pure: it starts
// no goroutine, reads no clock and does no I/O. Its decisions do not depend on map
// order.
//
// # Model
//
// The pending rows of one type, priority and duration class form a lane, ordered by (run_at, id). All
// rows of a lane age at the same rate, so this order is the order of their scores. A lane
// keeps its first rows, the candidates, and a cursor: the key of the last row that was
// read. When few candidates are left, a fetch reads rows after the cursor. It hardly
// visits dead index entries of finished jobs.
//
// A transaction may commit after others that began later. So if the last read of a lane
// returned all its rows, the next one begins 100 ms before the present, if that is
// before the cursor. Other rows that become pending before the cursor (after a longer
// transaction, or because a job returned) are found by a scan:
//
//   - A full scan reads lanes from their beginning. It follows a notification within
//     50 ms, and happens at every poll.
//   - While full scans are slow, a backfill scan reads the range up to the cursor
//     instead, on a connection of its own, and delays no other read.
//
// With several dispatchers each type has a share. Rows outside the share are
// non-local. They have lanes of their own, which are read for slots that have no
// local row, and at every poll. An idle slot takes a row that its owner has left for
// OwnerGrace since it was seen. See contract.Share.
//
// # Invariants
//
//   - The candidates of a lane are in ascending order, and all at or before its cursor.
//   - A lane without candidates may have rows after its cursor. Its upper bound is then
//     its cursor. No unread row of the lane ranks before the upper bound. The caller
//     must not let a job with a lower score pass an upper bound, see Head.
//   - A row that is in hand is never a candidate.
//   - At most one fetch and one backfill scan are in flight.
//   - If the type of a pending and due row has a slot, a later scan finds the row, even
//     if notifications or answers were lost.
//   - All knowledge of this package is a hint: the claim decides which dispatcher runs a
//     row.
//
// # Order of calls
//
// For every step of its caller:
//
//  1. Advance sets the instant.
//  2. Events: Notified, RowNotified, ListenerChanged, Fetched, GateAnswered; TypeAppeared,
//     TypeGone, CapacityAppeared, SetShare, SlotFreed; JobTaken, PutBack, Lost, GivenBack,
//     Delayed, Departed, Rescan.
//  3. Waiting, Head and Pop offer and remove the heads. Before, Jobs.LanesChanged has named
//     the types whose heads may have changed.
//  4. NextRead returns the fetches to send, NextGate the change of the notification gate.
//     The requests belong to the caller until it passes them to Fetched.
//  5. Wake returns when the next step is due if nothing happens.
package backlog
