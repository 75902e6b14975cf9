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
	unknown bool          // and logged
	warned  time.Duration // when that was logged last
}

// pace is the time from look to look at a source that took some time, and that no offer has met
// for some.
func (w *watch) pace(took, unmet time.Duration, failed error) time.Duration {
	every := w.Every()
	if unmet > needed {
		every *= unneeded
	}
	if failed != nil {
		every = max(every, afterError)
	}
	return min(max(every, leisure*took), max(seldomest, w.Every()))
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
