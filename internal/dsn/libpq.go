package dsn

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// The driver takes a parameter of libpq that it does not know for a setting of the server, which would then refuse the connection.
// docs/how-to/operations.md lists what becomes of each.

// ignored are parameters of libpq that change nothing for a client that writes with its own time limits and without GSSAPI.
var ignored = []string{
	"gssdelegation", "gsslib", "load_balance_hosts", "replication", "sslcompression", "sslkeylogfile", "tcp_user_timeout",
}

// unsupported are parameters of libpq by which the user demands what this program cannot do.
var unsupported = []string{
	"requirepeer", "requiressl", "sslcrl", "sslcrldir", "scram_client_key", "scram_server_key",
	"oauth_issuer", "oauth_client_id", "oauth_client_secret", "oauth_scope", "oauth_ca_file",
}

// applyLibpq executes the parameters of libpq that the driver does not know, and removes them.
func applyLibpq(config *pgx.ConnConfig) error {
	take := func(name string) string {
		value := config.RuntimeParams[name]
		delete(config.RuntimeParams, name)
		return value
	}
	for _, name := range ignored {
		take(name)
	}
	if take("hostaddr") != "" {
		return errors.New("hostaddr is not supported: give the address as host")
	}
	for _, name := range unsupported {
		if take(name) != "" {
			return fmt.Errorf("%s is not supported: leave it out", name)
		}
	}
	if name := take("fallback_application_name"); config.RuntimeParams["application_name"] == "" && name != "" {
		config.RuntimeParams["application_name"] = name
	}
	if take("gssencmode") == "require" {
		return errors.New("gssencmode=require is not supported: encrypt with TLS (sslmode=verify-full)")
	}
	if err := limitTLS(config, take("ssl_min_protocol_version"), take("ssl_max_protocol_version")); err != nil {
		return err
	}
	return keepAlive(config, take)
}

// keepAlive sets how the host finds out that the server is gone. 0 is the default of the host.
func keepAlive(config *pgx.ConnConfig, take func(string) string) error {
	var values [4]int
	given := false
	for i, p := range []struct{ name, value string }{
		{"keepalives", "0 or 1"},
		{"keepalives_idle", "a whole number of seconds"},
		{"keepalives_interval", "a whole number of seconds"},
		{"keepalives_count", "a whole number"},
	} {
		text := take(p.name)
		n, err := strconv.Atoi(cmp.Or(text, "-1"))
		if err != nil {
			return fmt.Errorf("%s must be %s", p.name, p.value)
		}
		given = given || text != ""
		values[i] = n
	}
	if !given {
		return nil
	}
	ofHost := func(n int) int {
		if n <= 0 {
			return -1
		}
		return n
	}
	seconds := func(n int) time.Duration { return time.Duration(ofHost(n)) * time.Second }
	dialer := net.Dialer{Timeout: config.ConnectTimeout, KeepAlive: -1, KeepAliveConfig: net.KeepAliveConfig{
		Enable: values[0] != 0, Idle: seconds(values[1]), Interval: seconds(values[2]), Count: ofHost(values[3]),
	}}
	config.DialFunc = dialer.DialContext
	return nil
}

var tlsVersions = map[string]uint16{
	"TLSv1": tls.VersionTLS10, "TLSv1.1": tls.VersionTLS11, "TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13,
}

// limitTLS sets the versions of TLS that may be used; "" = the default.
func limitTLS(config *pgx.ConnConfig, low, high string) error {
	for _, version := range []string{low, high} {
		if version != "" && tlsVersions[version] == 0 {
			return errors.New("ssl_min_protocol_version and ssl_max_protocol_version must be TLSv1, TLSv1.1, TLSv1.2 or TLSv1.3")
		}
	}
	all := []*tls.Config{config.TLSConfig}
	for _, f := range config.Fallbacks {
		all = append(all, f.TLSConfig)
	}
	for _, c := range all {
		if c != nil {
			c.MinVersion, c.MaxVersion = tlsVersions[low], tlsVersions[high]
		}
	}
	return nil
}
