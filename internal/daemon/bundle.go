package daemon

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// BundlePath is the path of the debug bundle on the Unix socket of the API. It
// is not part of the public API: only "dispatcherd debug bundle" uses it.
const BundlePath = "/debug/bundle"

// withBundle serves the debug bundle to operators.
func (d *Daemon) withBundle(next http.Handler) http.Handler {
	var busy sync.Mutex // bounds the memory: one bundle at a time
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != BundlePath {
			next.ServeHTTP(w, r)
			return
		}
		switch {
		case !isOperator(httpapi.ConnOf(r)):
			rest.Forbidden.Of("only root and the user that the dispatcher runs as may take a bundle, over its Unix socket").Send(w)
		case !busy.TryLock():
			rest.Conflict.Of("another bundle is being written").Send(w)
		default:
			defer busy.Unlock()
			w.Header().Set("Content-Type", "application/gzip")
			if err := d.writeBundle(w); err != nil {
				d.log.Warn("debug bundle not completely written", zap.Error(err))
			}
		}
	})
}

// isOperator reports whether the peer of a Unix socket is root or the user of this process.
// If the kernel does not identify the peer, the permissions of the socket decide.
func isOperator(conn net.Conn) bool {
	if _, ok := conn.(*net.UnixConn); !ok {
		return false
	}
	uid := workerproto.PeerOf(conn).UID
	return uid == 0 || uid == os.Geteuid() || uid < 0 && runtime.GOOS != "linux"
}

// maxGoroutines bounds the dump of goroutine stacks, in bytes.
const maxGoroutines = 4 << 20

// writeBundle writes a compressed tar archive with one file per subject.
func (d *Daemon) writeBundle(w io.Writer) error {
	stacks := make([]byte, maxGoroutines)
	stacks = stacks[:runtime.Stack(stacks, true)]
	families, err := d.metrics.registry.Gather()
	if err != nil {
		return err
	}
	var metrics bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&metrics, f); err != nil {
			return err
		}
	}
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	var decisions bytes.Buffer // an entry has about 600 bytes at most
	if d.decisions != nil {
		if err := d.decisions.Export(&decisions); err != nil {
			return err
		}
	}
	now := time.Now()
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{"version", []byte(d.cfg.Version + "\n")},
		{"configuration", d.cfg.Settings},
		{"metrics", metrics.Bytes()},
		{"goroutines", stacks},
		{"decisions.jsonl", decisions.Bytes()},
	} {
		header := &tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.content)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zip.Close())
}
