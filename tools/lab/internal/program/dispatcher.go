package program

import (
	"flag"

	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Dispatcher says how a worker reaches its dispatchers: over a Unix socket, or over TCP.
type Dispatcher struct {
	Socket    string `json:"socket"`    // path of a Unix socket; "" = TCP
	Addresses string `json:"addresses"` // of dispatchers, separated by commas, such as tls://127.0.0.1:7411
	TokenFile string `json:"token_file"`
	CA        string `json:"ca"` // file of the certificates that sign those of the dispatchers
}

// Flags adds the flags that Args returns.
func (d *Dispatcher) Flags() {
	flag.StringVar(&d.Socket, "socket", "", "the daemon's socket for workers; empty = -dispatcher")
	flag.StringVar(&d.Addresses, "dispatcher", "", "addresses of daemons, such as tls://127.0.0.1:7411, separated by commas")
	flag.StringVar(&d.TokenFile, "token-file", "", "file with the token for the daemons")
	flag.StringVar(&d.CA, "ca", "", "file of the certificates that sign those of the daemons")
}

// Args returns the arguments from which Flags reads the same Dispatcher.
func (d *Dispatcher) Args() (args []string) {
	for _, f := range [][2]string{{"-socket", d.Socket}, {"-dispatcher", d.Addresses}, {"-token-file", d.TokenFile}, {"-ca", d.CA}} {
		if f[1] != "" { // a program of an earlier commit knows -socket only
			args = append(args, f[:]...)
		}
	}
	return args
}

// Options adds the dispatchers to the options of a worker.
func (d *Dispatcher) Options(o worker.Options) worker.Options {
	o.Socket, o.Dispatcher = d.Socket, d.Addresses
	o.Credentials = workerproto.Credentials{TokenFile: d.TokenFile, CA: d.CA}
	return o
}
