package trace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The slots of article 1: A [pdf], B [pdf excel], C [pdf excel index].
func articleSlots() []Fact {
	return []Fact{
		{Kind: SlotRegistered, Slot: 1, Types: []string{"pdf"}},
		{Kind: SlotRegistered, Slot: 2, Types: []string{"excel", "pdf"}},
		{Kind: SlotRegistered, Slot: 3, Types: []string{"excel", "index", "pdf"}},
		{Kind: JobSubmitted, Job: 10, Types: []string{"pdf"}},
		{Kind: JobSubmitted, Job: 11, Types: []string{"pdf"}},
		{Kind: JobSubmitted, Job: 12, Types: []string{"index"}},
	}
}

func place(job, slot int64) Fact        { return Fact{Kind: JobPlaced, Job: job, Slot: slot} }
func free(job, slot int64) Fact         { return Fact{Kind: SlotFreed, Job: job, Slot: slot} }
func end(job int64) Fact                { return Fact{Kind: JobEnded, Job: job} }
func about(k FactKind, slot int64) Fact { return Fact{Kind: k, Slot: slot} }

func TestAuditorCountsEveryViolation(t *testing.T) {
	for name, c := range map[string]struct {
		facts []Fact
		want  Findings
	}{
		"no violation: each job takes the most specialised slot": {
			[]Fact{place(10, 1), place(11, 2), place(12, 3), free(10, 1), end(10), free(11, 2), end(11), free(12, 3), end(12)},
			Findings{Placements: 3}},
		"a versatile slot used while a specialised one is free": {
			[]Fact{place(10, 3), place(11, 2)}, Findings{Placements: 2, Misplaced: 2, Lost: 3}},
		"no violation: the specialised slot is busy": {
			[]Fact{place(10, 1), place(11, 2)}, Findings{Placements: 2, Lost: 3}},
		"no violation: the specialised slot is draining": {
			[]Fact{about(SlotDrained, 1), place(10, 2)}, Findings{Placements: 1, Lost: 3}},
		"no violation: the specialised slot is gone": {
			[]Fact{about(SlotGone, 1), place(10, 2)}, Findings{Placements: 1, Lost: 3}},
		"a versatile slot used although the specialised one has registered again": {
			[]Fact{about(SlotDrained, 1), {Kind: SlotRegistered, Slot: 1, Types: []string{"pdf"}}, place(10, 2)},
			Findings{Placements: 1, Misplaced: 1, Lost: 3}},
		"a slot without the type": {
			[]Fact{place(12, 1)}, Findings{Placements: 1, AffinityViolations: 1, Lost: 3}},
		"a slot that does not exist": {
			[]Fact{place(10, 9)}, Findings{Placements: 1, AffinityViolations: 1, Lost: 3}},
		"a job that is in two places": {
			[]Fact{place(10, 1), place(10, 2)}, Findings{Placements: 2, DoublePlacements: 1, Lost: 3}},
		"a slot that has two jobs": {
			[]Fact{place(10, 1), place(11, 1)}, Findings{Placements: 2, DoublePlacements: 1, Lost: 3}},
		"a draining slot that takes a job": {
			[]Fact{about(SlotDrained, 1), place(10, 1)}, Findings{Placements: 1, DoublePlacements: 1, Lost: 3}},
		"no violation: a job is placed again because its slot is gone": {
			[]Fact{place(10, 1), about(SlotGone, 1), place(10, 2), free(10, 2), end(10)}, Findings{Placements: 2, Lost: 2}},
		"no violation: a job is placed again after its release": {
			[]Fact{place(10, 1), free(10, 1), place(10, 1)}, Findings{Placements: 2, Lost: 3}},
		"a late release is ignored": {
			[]Fact{place(10, 1), free(10, 2), free(11, 1), place(11, 1)}, Findings{Placements: 2, DoublePlacements: 1, Lost: 3}},
		"no violation: a slot that registers again while busy is busy": {
			[]Fact{place(10, 1), about(SlotDrained, 1), {Kind: SlotRegistered, Slot: 1, Types: []string{"pdf"}}, place(11, 2)},
			Findings{Placements: 2, Lost: 3}},
		"a job placed after its end": {
			[]Fact{end(10), place(10, 1)}, Findings{Placements: 1, AffinityViolations: 1, Lost: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAuditor()
			for _, f := range append(articleSlots(), c.facts...) {
				a.Observe(f)
			}
			got := a.Findings()
			require.Equal(t, c.want, got)
			require.Len(t, a.Examples(), got.Misplaced+got.AffinityViolations+got.DoublePlacements)
			require.Equal(t, got == Findings{Placements: got.Placements}, got.Clean())
		})
	}
}
