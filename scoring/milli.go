package scoring

import "strconv"

// Milli is an amount of points in thousandths of a point.
type Milli int64

// String returns points: without a fraction when whole, otherwise with three
// digits after the point ("5620.016").
func (m Milli) String() string {
	return string(m.append(nil))
}

func (m Milli) append(b []byte) []byte {
	points, rest := int64(m)/1000, int64(m)%1000
	if m < 0 && points == 0 {
		b = append(b, '-') // "-0.500": the whole part is 0 and has no sign
	}
	b = strconv.AppendInt(b, points, 10)
	if rest == 0 {
		return b
	}
	rest = max(rest, -rest)
	return append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

// Terms are the summands of a score. They are kept separately, so that every
// decision can be explained. These places name each of them: package decisionlog,
// package httpapi, internal/daemon/backend/why.go and "job why".
type Terms struct {
	Base     Milli // business priority
	Age      Milli // time waited
	Rarity   Milli // scarcity of slots for the type
	OnDemand Milli // bonus and extra ageing of an on-demand request, 0 for a queued job
	Brevity  Milli // for the expected duration, see Weights.Brevity
}

// Total returns the score.
func (t Terms) Total() Milli { return t.Base + t.Age + t.Rarity + t.OnDemand + t.Brevity }

// String returns the score and its terms in points: "5620 = base 5120 + age 0 +
// rarity 500 + on-demand 0". It omits a Brevity of 0.
func (t Terms) String() string {
	b := t.Total().append(make([]byte, 0, 96))
	b = t.Base.append(append(b, " = base "...))
	b = t.Age.append(append(b, " + age "...))
	b = t.Rarity.append(append(b, " + rarity "...))
	b = t.OnDemand.append(append(b, " + on-demand "...))
	if t.Brevity != 0 {
		b = t.Brevity.append(append(b, " + brevity "...))
	}
	return string(b)
}
