package main

import (
	"slices"
	"testing"
	"time"
)

func TestStudyHasConstantAndProportionalSlotCounts(t *testing.T) {
	s := study{window: 2 * time.Second}
	points := s.companies([]int{1, 2, 4})
	var slots, numbers [2][]int
	together, each := divided(points)
	for i, list := range [][]point{together, each} {
		for _, p := range list {
			numbers[i] = append(numbers[i], p.X)
			slots[i] = append(slots[i], p.Shape.Slots)
			if p.Shape.feed || p.Shape.Backlog != 6*perSecond || p.Shape.Slots%p.Shape.Workers != 0 {
				t.Errorf("got %+v", p.Shape)
			}
		}
		if !slices.Equal(numbers[i], []int{1, 2, 4}) {
			t.Errorf("got dispatchers %v", numbers[i])
		}
	}
	if !slices.Equal(slots[0], []int{1000, 1000, 1000}) || !slices.Equal(slots[1], []int{1000, 2000, 4000}) {
		t.Errorf("got slots %v", slots)
	}
	if len(points) != 5 {
		t.Errorf("got %d shapes, want 5: one dispatcher is the same shape in both", len(points))
	}
}
