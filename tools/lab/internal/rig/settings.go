package rig

import "maps"

// Measured are the parameters of the server in measurements, the same for all
// contestants. Durability is on: a finished job survives a power failure. No
// checkpoint falls into the measured time, because its position would affect the
// result more than the contestant. Autovacuum is on.
var Measured = map[string]string{
	"shared_buffers":          "512MB",
	"fsync":                   "on",
	"synchronous_commit":      "on",
	"full_page_writes":        "on",
	"min_wal_size":            "4GB",
	"max_wal_size":            "16GB",
	"checkpoint_timeout":      "1h",
	"track_activities":        "on",
	"track_io_timing":         "off",
	"log_min_duration_sample": "-1",
	"log_min_messages":        "warning",
}

// durable are the parameters of the server in experiments with faults. It is durable as
// well, and its recovery is short.
var durable = map[string]string{
	"max_connections":    "100",
	"shared_buffers":     "256MB",
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"checkpoint_timeout": "1min",
	"max_wal_size":       "1GB",
	"wal_level":          "logical", // for publications
	"wal_keep_size":      "512MB",   // for a standby that is being created
	"log_min_messages":   "warning",
	"log_statement":      "none",
}

func (o Options) settings() map[string]string {
	usual := Measured
	if o.Faults {
		usual = durable
	}
	all := maps.Clone(usual)
	maps.Copy(all, o.Settings)
	return all
}
