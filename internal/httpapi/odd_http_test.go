package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// Unusual but valid requests get correct answers, on a new connection and after another
// request. Invalid requests get an error.
func TestUnusualHTTPGetsUsualAnswers(t *testing.T) {
	body := `{"type":"pdf"}`
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	chunks := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x;\r\n%s\r\n0;\r\n\r\n", len(body), body)
	huge := fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", DefaultConfig().MaxPayload+1)
	for name, c := range map[string]struct {
		text string
		want []int // statuses, one after the other
		last bool  // the server closes the connection then
	}{
		"HTTP/1.0":                  {"POST /v1/requests HTTP/1.0\r\n" + length + "\r\n" + body, []int{200}, true},
		"HTTP/1.0 that keeps alive": {"POST /v1/requests HTTP/1.0\r\nConnection: keep-alive\r\n" + length + "\r\n" + body, []int{200}, false},
		"HTTP/1.0 without a length": {"POST /v1/requests HTTP/1.0\r\n\r\n", []int{400}, true},
		"HTTP/0.9":                  {"GET /livez\r\n\r\n", []int{400}, true},
		"HTTP/2 without asking":     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{400}, true},
		"HTTP/2 after asking": {
			"GET /livez HTTP/1.1\r\nHost: d\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
				"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
			[]int{200}, false,
		},
		"Expect with a small body": {
			"POST /v1/requests HTTP/1.1\r\nHost: d\r\nExpect: 100-continue\r\n" + length + "\r\n" + body,
			[]int{100, 200}, false,
		},
		"Expect with a large body":  {"POST /v1/requests HTTP/1.1\r\nHost: d\r\n" + huge, []int{413}, true},
		"Expect of something else":  {"POST /v1/requests HTTP/1.1\r\nHost: d\r\nExpect: 200-ok\r\n" + length + "\r\n" + body, []int{417}, true},
		"OPTIONS *":                 {"OPTIONS * HTTP/1.1\r\nHost: d\r\n\r\n", []int{200}, false},
		"OPTIONS of a path":         {"OPTIONS /v1/requests HTTP/1.1\r\nHost: d\r\n\r\n", []int{405}, false},
		"absolute form":             {"POST http://d/v1/requests HTTP/1.1\r\nHost: d\r\n" + length + "\r\n" + body, []int{200}, false},
		"absolute form, other host": {"GET http://other/livez HTTP/1.1\r\nHost: d\r\n\r\n", []int{200}, false},
		"CONNECT":                   {"CONNECT d:443 HTTP/1.1\r\nHost: d:443\r\n\r\n", []int{404}, false},
		"lower case":                {"post /v1/requests HTTP/1.1\r\nHost: d\r\n" + length + "\r\n" + body, []int{405}, false},
		"headers in upper case":     {"POST /v1/requests HTTP/1.1\r\nHOST: d\r\n" + strings.ToUpper(length) + "\r\n" + body, []int{200}, false},
		"Connection: close": {
			"POST /v1/requests HTTP/1.1\r\nHost: d\r\nConnection: close\r\n" + length + "\r\n" + body,
			[]int{200}, true,
		},
		"empty chunk extensions": {"POST /v1/requests HTTP/1.1\r\nHost: d\r\n" + chunks, []int{200}, false},
		"a trailer": {
			"POST /v1/requests HTTP/1.1\r\nHost: d\r\n" + strings.TrimSuffix(chunks, "\r\n") + "X-Sum: 1\r\n\r\n",
			[]int{200}, false,
		},
		"TE and length of nothing": {"GET /livez HTTP/1.1\r\nHost: d\r\nTE: trailers\r\nContent-Length: 0\r\n\r\n", []int{200}, false},
		"a folded header":          {"GET /livez HTTP/1.1\r\nHost: d\r\nX-Long: a\r\n b\r\n\r\n", []int{200}, false},
		"a space before the colon": {"GET /livez HTTP/1.1\r\nHost : d\r\n\r\n", []int{400}, true},
	} {
		for _, before := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/%d before", name, before), func(t *testing.T) {
				address, h, f, _ := served(t, nil)
				conn := connect(t, address)
				require.NoError(t, conn.conn.SetDeadline(time.Now().Add(20*time.Second)))
				conn.sendRequests(before)
				_, err := io.WriteString(conn.conn, c.text)
				require.NoError(t, err)
				for n := range before {
					f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
					require.Equal(t, 200, conn.readResponse().status, n)
				}
				for _, want := range c.want {
					if want == 200 && strings.Contains(c.text, body) {
						f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
					}
					require.Equal(t, want, statusOf(t, conn.in))
				}
				if c.last {
					conn.requireClosed()
				} else {
					_, err = io.WriteString(conn.conn, livez)
					require.NoError(t, err)
					require.Equal(t, 200, statusOf(t, conn.in))
					require.NoError(t, conn.conn.Close())
				}
				require.Eventually(t, func() bool { return h.Gauges().Connections == 0 && h.Gauges().Followers == 0 }, 20*time.Second, time.Millisecond)
				require.Empty(t, f.submitted)
			})
		}
	}
}

// Old programs send a line break after a body.
func TestLineBreakAfterABodyIsIgnored(t *testing.T) {
	address, _, f, _ := served(t, nil)
	c := connect(t, address)
	for range 3 {
		c.sendRequests(1)
		_, err := io.WriteString(c.conn, "\r\n")
		require.NoError(t, err)
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		require.Equal(t, http.StatusOK, statusOf(t, c.in))
	}
	_, err := io.WriteString(c.conn, livez)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, statusOf(t, c.in))
}

func statusOf(t *testing.T, in *bufio.Reader) int {
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}
