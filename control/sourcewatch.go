package control

import (
	"log/slog"
	"time"

	"proffer/loadsource"
)

// watch is a source while it is read.
type watch struct {
	Named
	service int
	over    bool // another watch has the service

	word    Word
	good    time.Duration // when there was a load last, or the watch began
	asked   time.Duration // when an offer met the load last, or the watch began
	looked  time.Duration // last
	period  time.Duration // between two looks
	unknown bool          // and logged
	warned  time.Duration // when that was logged last
}

// pace is the time to the next look, after a look that began and ended, since the last of which some
// offers came: as long as between two offers.
func (w *watch) pace(offers uint32, began, ended time.Duration, failed error) time.Duration {
	every := w.Every()
	switch since := ended - w.looked; {
	case offers > 0:
		w.asked = ended
		w.period = min(max(since/time.Duration(offers), every), seldom*every)
	case ended-w.asked > needed:
		w.period = unneeded * every
	default:
		w.period = min(2*w.period, seldom*every)
	}
	w.looked = ended
	next := max(w.period, leisure*(ended-began))
	if failed != nil {
		next = max(next, afterError)
	}
	return min(next, max(seldomest, every))
}

// note keeps the word for the status, and logs once that there is no load any more, or is one
// again. A source that comes and goes is logged once a minute.
func (w *watch) note(reading loadsource.Reading, failed error, now time.Duration, log *slog.Logger) {
	if failed == nil {
		w.word, w.good = Word{Reading: reading}, now
		if w.unknown {
			w.unknown = false
			log.Info("the load is known again", "service", w.Service, "load", w.Load)
		}
		return
	}
	w.word.Trouble = failed.Error()
	if reading.Written != 0 {
		w.word.Reading = reading
	}
	if w.unknown || now-w.good < loadsource.Stale || w.warned != 0 && now-w.warned < warnedAgain {
		return
	}
	w.unknown, w.warned = true, now
	log.Warn("the load is not known: offers are passed on", "service", w.Service, "load", w.Load, "error", failed)
}
