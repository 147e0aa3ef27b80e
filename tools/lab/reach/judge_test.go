package main

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/scoring"
)

var noon = time.Unix(1_800_000_000, 0)

// at is an instant so many seconds after noon.
func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// placed is a placement of a queued job of type a, which has waited for two seconds, by the default weights and with two slots.
func placed(job int64, seconds float64, slot string, types int32) decisionlog.Line {
	waited := 2.0
	return decisionlog.Line{
		At: at(seconds), Decision: "placed", Job: job, Mode: "queued", Type: "a", Worker: slot, Capacity: 2, SlotTypes: types, Waited: &waited,
		Score: &contract.Score{Total: 2*16 + 250},
	}
}

// slots are one that supports a, and one that supports a and b. Both are on line from noon on.
func slots() map[string]*offered {
	return map[string]*offered{
		"narrow": {types: []string{"a"}, times: []offer{{from: noon}}},
		"wide":   {types: []string{"a", "b"}, times: []offer{{from: noon}}},
	}
}

func TestPlacementsOfTheRuleAreAccepted(t *testing.T) {
	log := []decisionlog.Line{
		placed(1, 1, "narrow", 1), placed(2, 1, "wide", 2), {At: at(2), Decision: "ended", Job: 1}, placed(3, 2, "narrow", 1),
	}
	v := judgePlacements(scoring.Default(), slots(), log)
	if v != (verdict{placements: 3, choices: 1}) {
		t.Errorf("%+v", v)
	}
}

func TestMisplacementIsFound(t *testing.T) {
	v := judgePlacements(scoring.Default(), slots(), []decisionlog.Line{placed(1, 1, "wide", 2)})
	if v.misplaced != 1 || v.wrong != 1 {
		t.Errorf("%+v", v)
	}
}

func TestSlotThatIsJustAddedIsNotCertainlyFree(t *testing.T) {
	late := slots()
	late["narrow"].times[0].from = at(0.9)
	v := judgePlacements(scoring.Default(), late, []decisionlog.Line{placed(1, 1, "wide", 2)})
	if v.misplaced != 0 {
		t.Errorf("%+v", v)
	}
}

func TestDecisionsAgainstTheRuleAreFound(t *testing.T) {
	for name, change := range map[string]func(*decisionlog.Line){
		"score": func(d *decisionlog.Line) { d.Score.Total++ },
		"runner-up": func(d *decisionlog.Line) {
			d.RunnerUp = &contract.RunnerUp{Job: 2, Type: "a", Score: d.Score.Total + 1}
		},
		"type":       func(d *decisionlog.Line) { d.Type = "c" },
		"slot types": func(d *decisionlog.Line) { d.SlotTypes = 2 },
		"other slot": func(d *decisionlog.Line) { d.Worker = "unknown" },
	} {
		d := placed(1, 1, "narrow", 1)
		change(&d)
		if v := judgePlacements(scoring.Default(), slots(), []decisionlog.Line{d}); v.wrong != 1 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
