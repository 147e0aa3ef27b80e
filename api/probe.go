package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// live says whether the loop turns; nothing else may end the process.
func (h *Handler) live(w http.ResponseWriter, r *http.Request) error {
	alive, _ := h.backend.Checks()
	return probe(w, r, alive, []Check{{Name: "loop", OK: alive}})
}

// ready says whether new work is taken.
func (h *Handler) ready(w http.ResponseWriter, r *http.Request) error {
	alive, checks := h.backend.Checks()
	checks = append([]Check{{Name: "loop", OK: alive}}, checks...)
	ok := true
	for _, c := range checks {
		ok = ok && (c.OK || excluded(r, c.Name))
	}
	return probe(w, r, ok, checks)
}

// excluded reads ?exclude=name, as Kubernetes' own probes have it.
func excluded(r *http.Request, name string) bool {
	return slices.Contains(r.URL.Query()["exclude"], name)
}

// probe answers in words; the status is what counts.
func probe(w http.ResponseWriter, r *http.Request, ok bool, checks []Check) error {
	if !ok {
		var bad []string
		for _, c := range checks {
			if !c.OK {
				bad = append(bad, strings.TrimSpace(c.Name+" "+c.Info))
			}
		}
		return unavailable.of("not ok: " + strings.Join(bad, ", "))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Query().Has("verbose") {
		for _, c := range checks {
			mark := "+"
			if !c.OK {
				mark = "-"
			}
			fmt.Fprintf(w, "[%s] %s %s\n", mark, c.Name, c.Info)
		}
	}
	fmt.Fprintln(w, "ok")
	return nil
}

// SlotList answers GET /v1/slots.
type SlotList struct {
	Slots []Slot `json:"slots" nullable:"false"`
}

// TypeList answers GET /v1/types.
type TypeList struct {
	Types []Type `json:"types" nullable:"false"`
}

func (h *Handler) getSlots(w http.ResponseWriter, _ *http.Request) error {
	slots := h.backend.Slots()
	if slots == nil {
		slots = []Slot{}
	}
	answerJSON(w, http.StatusOK, SlotList{Slots: slots})
	return nil
}

func (h *Handler) getTypes(w http.ResponseWriter, _ *http.Request) error {
	types := h.backend.Types()
	if types == nil {
		types = []Type{}
	}
	answerJSON(w, http.StatusOK, TypeList{Types: types})
	return nil
}

func (h *Handler) getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(h.openapi) // the caller is gone; nobody is left to tell
	return nil
}
