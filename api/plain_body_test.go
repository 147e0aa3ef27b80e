package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// plainly reads a body in the short way.
func plainly(h *Handler, body string) (Request, bool) {
	var b plainBody
	if !b.parse([]byte(body)) {
		return Request{}, false
	}
	return b.request(&h.cfg, string(b.kind))
}

// fully reads it in the way of net/http's requests. False: it is refused, or asks
// for more than an answer.
func fully(h *Handler, body string) (Request, bool) {
	q, err := h.parseRequest([]byte(body))
	if err != nil || q.Durable || q.WaitForWorker != nil || q.CoalesceKey != "" {
		return Request{}, false
	}
	r, err := h.request(&q)
	return r, err == nil
}

func TestAnOrdinaryBodyIsReadInTheShortWay(t *testing.T) {
	h, _, _ := house(t, nil)
	for body, want := range map[string]Request{
		`{"type":"pdf"}`: {Type: "pdf", Deadline: h.cfg.DefaultTimeout},
		"{\n  \"type\": \"pdf render/2\",\n  \"payload\": {\"type\":\"x\", \"a\":[\"ü\\n\"]},\r\n\t\"priority\": 10,\n  \"timeout\": \"1m30s\"\n}\n": {
			Type: "pdf render/2", Payload: []byte(`{"type":"x", "a":["ü\n"]}`), Priority: 10, Deadline: 90 * time.Second},
		` {"timeout":0.25 , "priority":0,"payload":null,"type":"~"} `: {Type: "~", Payload: []byte(`null`), Deadline: 250 * time.Millisecond},
		`{"payload":-1.5e3,"type":"pdf","timeout":3600}`:              {Type: "pdf", Payload: []byte(`-1.5e3`), Deadline: time.Hour},
	} {
		got, ok := plainly(h, body)
		require.True(t, ok, body)
		require.Equal(t, want, got)
		got, ok = fully(h, body)
		require.True(t, ok, body)
		require.Equal(t, want, got)
	}
}

// unusual are bodies that are left to the long way, whatever that makes of them.
var unusual = []string{
	``, ` `, `null`, `[]`, `{`, `{}`, `{"type"`, `{"type":`, `{"type": `, `{"type":"pdf"`, `{"type":"pdf" `, `{"type":"pdf",`, `{"type":"pdf",}`,
	`{"type":"pdf"}}`, `{"type":"pdf"} x`, `{"type":"pdf"]`, `{"type":"pdf" "payload":1}`, `{"type" "pdf"}`, `{type:"pdf"}`,
	`{"Type":"pdf"}`, `{"\u0074ype":"pdf"}`, `{"type":"p\u0064f"}`, `{"type":"pdf","type":"pdf"}`, `{"type":"pdf","payload":1,"payload":1}`,
	`{"type":""}`, `{"type":null}`, `{"type":7}`, `{"type":"pdf` + "\x7f" + `"}`, `{"type":"ü"}`, `{"type":"` + strings.Repeat("x", dispatcherd.MaxTypeLength+1) + `"}`,
	`{"type":"pdf","payload":}`, `{"type":"pdf","payload":{"a":1]}`, `{"type":"pdf","payload":"` + "\xff" + `"}`,
	"{\"type\":\"pdf\",\"payload\":[1,\n2]}", "{\"type\":\"pdf\",\"payload\":[1,\r2]}", `{"type":"pdf","payload":"\u0000"}`,
	`{"type":"pdf","payload":1e12345}`, `{"type":"pdf","payload":` + strings.Repeat("[", 129) + strings.Repeat("]", 129) + `}`,
	`{"type":"pdf","priority":11}`, `{"type":"pdf","priority":-1}`, `{"type":"pdf","priority":03}`, `{"type":"pdf","priority":1.0}`,
	`{"type":"pdf","priority":1e0}`, `{"type":"pdf","priority":null}`, `{"type":"pdf","priority":"3"}`, `{"type":"pdf","priority":110}`,
	`{"type":"pdf","timeout":null}`, `{"type":"pdf","timeout":0}`, `{"type":"pdf","timeout":3601}`, `{"type":"pdf","timeout":1e400}`,
	`{"type":"pdf","timeout":"1"}`, `{"type":"pdf","timeout":"1\u0073"}`, `{"type":"pdf","timeout":"0.0000000000000000000000001h"}`,
	`{"type":"pdf","timeout":true}`, `{"type":"pdf","timeout":[1]}`, `{"type":"pdf","durable":false}`, `{"type":"pdf","wait_for_worker":1}`,
	`{"type":"pdf","coalesce_key":"k"}`, `{"type":"pdf","more":1}`, `{"payload":1}`,
}

func TestWhatIsUnusualInABodyIsLeftToTheLongWay(t *testing.T) {
	h, _, _ := house(t, nil)
	for _, body := range unusual {
		_, ok := plainly(h, body)
		require.False(t, ok, body)
	}
}

// What the short way takes is the same request in the long way.
func FuzzPlainBody(f *testing.F) {
	f.Add(`{"type":"pdf","payload":{"a":[1]},"priority":3,"timeout":"1.5s"}`)
	f.Add(" {\"timeout\": 2.5e0,\t\"priority\" :10, \"payload\":\"\\u00e9ü\",\"type\":\"a b\"}\n")
	for _, body := range unusual {
		f.Add(body)
	}
	h, _, _ := house(f, nil)
	f.Fuzz(func(t *testing.T, body string) {
		got, ok := plainly(h, body)
		if !ok {
			return
		}
		want, ok := fully(h, body)
		require.True(t, ok, "%q", body)
		require.Equal(t, want, got, "%q", body)
	})
}

// What a request leaves for the collector makes later ones wait.
func TestAPlainRequestTakesTheMemoryOfItsPayload(t *testing.T) {
	h, _, _ := house(t, nil)
	c := &plainConn{front: &front{h: h}, h: h}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		p, ok := parsePlain(benchRequest)
		require.True(t, ok)
		_, ok = c.request(benchRequest[p.head : p.head+p.body])
		require.True(t, ok)
	}), 1.0)
}

// A payload that no worker can be sent is refused at once, in either way.
func TestAPayloadThatNobodyCanBeSentIsRefused(t *testing.T) {
	onEachServer(t, func(t *testing.T, serve server) {
		address, _, f, _ := servedBy(t, serve, nil)
		for payload, want := range map[string]string{
			`"\u0000"`: "cannot be kept", `["\ud800"]`: "half a surrogate pair", `1e12345`: "too large",
			strings.Repeat("[", 129) + strings.Repeat("]", 129): "nested too deep",
		} {
			c := connect(t, address)
			c.sends(`{"type":"pdf","payload":` + payload + `}`)
			got := c.hears()
			require.Equal(t, 422, got.status)
			require.Contains(t, got.text, "the payload cannot be handed on: ")
			require.Contains(t, got.text, want)
		}
		require.Empty(t, f.submitted)
	})
}
