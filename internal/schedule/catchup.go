package schedule

import "time"

// occasions returns the ticks for the occasions of a cron schedule after its mark, at most a
// number of them. Up to countMost occasions are counted; Due continues after the mark has moved.
func (e *entry) occasions(now int64, most int, steps *int) (ticks []Tick) {
	count, recent, young := e.count(now)
	*steps -= count
	run := max(recent, min(young, int(e.most)))
	omitted := count - run
	if count == countMost {
		omitted = min(omitted, countMost-maxMost-promptMost) // later occasions may be newer
		run = 0
	}
	at := e.mark
	if omitted > 0 {
		for range omitted {
			at = e.next(at)
		}
		*steps -= omitted
		t := e.tick(at, missedOccasion(at))
		t.Missed = omitted
		ticks = append(ticks, t)
	}
	for range min(run, most-len(ticks)) {
		at = e.next(at)
		ticks = append(ticks, e.tick(at, CronOccasion(time.UnixMicro(at))))
	}
	return ticks
}

// count counts the occasions in (mark, now], those of the last Prompt, and those that are
// younger than catchUp.
func (e *entry) count(now int64) (all, recent, young int) {
	for at := e.next(e.mark); at <= now && all < countMost; at = e.next(at) {
		all++
		if at >= now-Prompt.Microseconds() {
			recent++
		}
		if at > now-e.catchUp {
			young++
		}
	}
	return all, recent, young
}
