package scoring

import "github.com/dispatcherd/dispatcherd/internal/contract"

// Milli is an amount of points in thousandths of a point.
type Milli int64

// Points returns the amount in points.
func (m Milli) Points() float64 { return float64(m) / 1000 }

// Terms are the summands of a score. They are kept separately, so that every
// decision can be explained. These places name each of them: package decisionlog,
// contract.Score and "job why".
type Terms struct {
	Base     Milli // business priority
	Age      Milli // time waited
	Rarity   Milli // scarcity of slots for the type
	OnDemand Milli // bonus and extra ageing of an on-demand request, 0 for a queued job
	Brevity  Milli // for the expected duration, see Weights.Brevity
}

// Total returns the score.
func (t Terms) Total() Milli { return t.Base + t.Age + t.Rarity + t.OnDemand + t.Brevity }

// Points returns the score as it is shown.
func (t Terms) Points() contract.Score {
	return contract.Score{
		ScoreTerms: contract.ScoreTerms{
			Base: t.Base.Points(), Age: t.Age.Points(), Rarity: t.Rarity.Points(), Brevity: t.Brevity.Points(),
		},
		Total: t.Total().Points(), OnDemand: t.OnDemand.Points(),
	}
}
