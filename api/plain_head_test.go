package api

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const plainText = "POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

func TestWhatIsPlain(t *testing.T) {
	for _, text := range []string{
		plainText,
		"POST /v1/requests HTTP/1.1\r\nhost:127.0.0.1:80\r\ncontent-LENGTH: \t2 \r\nUser-Agent: curl/8 (x; y)\r\nAccept: */*\r\n\r\n{}",
		"POST /v1/requests HTTP/1.1\r\nHost: d\r\nAccept-Encoding: gzip, br\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
	} {
		p, ok := parsePlain([]byte(text + "POST"))
		require.True(t, ok, text)
		require.Equal(t, len(text), p.head+p.body)
		for n := range text {
			_, ok := parsePlain([]byte(text[:n]))
			require.False(t, ok, "only %d bytes are there", n)
		}
	}
}

// notPlain are changes to plainText after which it could be understood in two
// ways, or asks for more than an answer.
var notPlain = map[string][2]string{
	"another method":        {"POST", "PUT"},
	"another path":          {"/v1/requests", "/v1/requests?x=1"},
	"an old version":        {"HTTP/1.1", "HTTP/1.0"},
	"no host":               {"Host: d\r\n", ""},
	"two hosts":             {"Host: d\r\n", "Host: d\r\nHost: d\r\n"},
	"an odd host":           {"Host: d", "Host: d/e"},
	"no length":             {"Content-Length: 2\r\n", ""},
	"two lengths":           {"Content-Length: 2", "Content-Length: 2\r\nContent-Length: 2"},
	"a list of lengths":     {"Content-Length: 2", "Content-Length: 2, 2"},
	"a signed length":       {"Content-Length: 2", "Content-Length: +2"},
	"a long length":         {"Content-Length: 2", "Content-Length: 00000002"},
	"two framings":          {"Content-Length: 2", "Content-Length: 2\r\nTransfer-Encoding: chunked"},
	"a space before colon":  {"Content-Length: 2", "Content-Length : 2"},
	"a continued line":      {"Content-Length: 2", "Content-Length:\r\n 2"},
	"a leading space":       {"Host: d", " Host: d"},
	"a bare line feed":      {"Host: d\r\n", "Host: d\n"},
	"a bare return":         {"Host: d\r\n", "Host: d\r"},
	"a control character":   {"Host: d\r\n", "Host: d\r\nUser-Agent: \x01\r\n"},
	"beyond ASCII":          {"Host: d\r\n", "Host: d\r\nUser-Agent: ü\r\n"},
	"expects 100":           {"Host: d\r\n", "Host: d\r\nExpect: 100-continue\r\n"},
	"an upgrade":            {"Host: d\r\n", "Host: d\r\nUpgrade: h2c\r\n"},
	"the connection's end":  {"Host: d\r\n", "Host: d\r\nConnection: close\r\n"},
	"a stream":              {"Host: d\r\n", "Host: d\r\nAccept: text/event-stream\r\n"},
	"a preference":          {"Host: d\r\n", "Host: d\r\nPrefer: respond-async\r\n"},
	"an idempotency key":    {"Host: d\r\n", "Host: d\r\nIdempotency-Key: k\r\n"},
	"a token":               {"Host: d\r\n", "Host: d\r\nAuthorization: Bearer x\r\n"},
	"another media type":    {"application/json", "text/plain"},
	"a media type in words": {"application/json", "application/json; charset=utf-8"},
	"a negative length":     {"Content-Length: 2", "Content-Length: -2"},
	"a hexadecimal length":  {"Content-Length: 2", "Content-Length: 0x2"},
	"another way to end":    {"\r\n\r\n{}", "\n\n{}"},
}

func TestWhatIsNotPlain(t *testing.T) {
	for name, change := range notPlain {
		text := strings.Replace(plainText, change[0], change[1], 1)
		require.NotEqual(t, plainText, text)
		_, ok := parsePlain([]byte(text))
		require.False(t, ok, name)
	}
}

// It gets what net/http says to it, or hears nothing where net/http is silent.
func TestWhatIsNotPlainIsAnsweredByNetHTTP(t *testing.T) {
	var addresses []string
	for _, serve := range []server{(*Handler).Serve, (*Handler).ServeOpen} {
		address, _, _, _ := servedBy(t, serve, func(c *Config) { c.HeaderTimeout, c.BodyTimeout = 50*time.Millisecond, 50*time.Millisecond })
		addresses = append(addresses, address)
	}
	for name, change := range notPlain {
		text := strings.Replace(plainText, change[0], change[1], 1)
		require.Equal(t, says(t, addresses[0], text), says(t, addresses[1], text), name)
	}
}

// What counts as plain is for net/http the same request, with the same body, and
// ends at the same byte.
func FuzzPlainRequest(f *testing.F) {
	f.Add([]byte(plainText + plainText))
	f.Add([]byte("POST /v1/requests HTTP/1.1\r\nHost: [::1]:8\r\nAccept: */*\r\nUser-Agent: \t x\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Add([]byte("POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 07\r\nConnection: keep-alive\r\n\r\n{\"a\":1}GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, ok := parsePlain(text)
		if !ok {
			return
		}
		raw := bytes.NewReader(text)
		in := bufio.NewReader(raw)
		r, err := http.ReadRequest(in)
		require.NoError(t, err)
		require.Equal(t, http.MethodPost, r.Method)
		require.Equal(t, plainPath, r.URL.RequestURI())
		require.Equal(t, "HTTP/1.1", r.Proto)
		require.EqualValues(t, p.body, r.ContentLength)
		require.Empty(t, r.TransferEncoding)
		require.False(t, r.Close)
		require.NotEmpty(t, r.Host)
		require.Empty(t, r.Header.Get("Expect"))
		require.True(t, isJSON(r))
		require.False(t, prefersAsync(r))
		stream, err := wantsStream(r)
		require.NoError(t, err)
		require.False(t, stream)
		require.Empty(t, r.Header.Get("Idempotency-Key"))
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, string(text[p.head:p.head+p.body]), string(body))
		rest := raw.Len() + in.Buffered()
		require.Equal(t, len(text)-p.head-p.body, rest, "what follows is the next request's")
	})
}
