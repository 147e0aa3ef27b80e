package trace

// The figures in this file were measured on the January 1999 records of the
// "Anonymous Bank" call centre (Guedj and Mandelbaum, Technion); docs/how-to/traces.md
// says which column became which figure. The code contains none of the records.

// service describes one type of work of the generated call centre.
type service struct {
	name   string
	calls  int64     // share of all calls, in ten-thousandths
	urgent int64     // share of priority 7 instead of 3 among its calls, in thousandths
	batch  int64     // share of the batch stream, in thousandths; invented
	length quantiles // of one call, seconds
}

// services lists the types. The last two are invented: rare skills that only
// the batch stream asks for.
var services = []service{
	{name: "regular", calls: 7594, urgent: 334, batch: 450,
		length: quantiles{1, 23, 41, 60, 78, 99, 123, 155, 202, 273, 422, 594, 1034, 2169, 5300}},
	{name: "prospect", calls: 1496, urgent: 1, batch: 250,
		length: quantiles{1, 9, 16, 29, 39, 49, 62, 79, 104, 142, 236, 346, 722, 1288, 2498}},
	{name: "stock", calls: 549, urgent: 441, batch: 100,
		length: quantiles{1, 10, 44, 82, 123, 159, 202, 258, 345, 475, 739, 1033, 2029, 3042, 4171}},
	{name: "internet", calls: 75, urgent: 0, batch: 50,
		length: quantiles{3, 31, 46, 79, 106, 133, 176, 226, 284, 402, 592, 856, 1493, 1585, 1585}},
	{name: "english", calls: 49, urgent: 303, batch: 50,
		length: quantiles{1, 3, 4, 38, 77, 125, 178, 208, 257, 348, 500, 810, 1430, 1594, 1594}},
	{name: callback, calls: 235, urgent: 367,
		length: quantiles{1, 2, 4, 5, 7, 10, 19, 41, 89, 144, 281, 434, 710, 3839, 3839}},
	{name: "audit", batch: 60},
	{name: "legal", batch: 40},
}

// callback is the one type of call for which no caller waits: the
// customer left a message, so the job is queued.
const callback = "callback"

// arrivalsPerHour is the share of arrivals in each hour of the day from seven
// in the morning to midnight, in thousandths.
var arrivalsPerHour = []int64{28, 74, 77, 84, 77, 73, 66, 71, 70, 75, 60, 48, 52, 42, 37, 35, 30}

// skillSets are the sets of types of the 27 measured agents, and how many
// agents have each set.
var skillSets = []struct {
	agents int
	types  []string
}{
	{1, []string{callback}},
	{2, []string{"prospect", "regular", callback}},
	{1, []string{"stock", "regular", callback}},
	{1, []string{"internet", "prospect", "regular"}},
	{8, []string{"stock", "prospect", "regular", callback}},
	{4, []string{"prospect", "english", "regular", callback}},
	{1, []string{"stock", "english", "regular", callback}},
	{1, []string{"internet", "prospect", "regular", callback}},
	{1, []string{"internet", "stock", "english", "regular"}},
	{2, []string{"internet", "stock", "prospect", "regular", callback}},
	{1, []string{"internet", "prospect", "english", "regular", callback}},
	{1, []string{"stock", "prospect", "english", "regular", callback}},
	{3, []string{"internet", "stock", "prospect", "english", "regular", callback}},
}

// sessionLength is how long an agent stays online, in seconds.
var sessionLength = quantiles{364, 883, 1326, 2521, 3323, 4610, 5952, 7468, 9638, 12717, 16566, 19743, 28931, 29457, 29457}

// batchLength is invented: the batch stream is steady work of 20 s to 3 min.
var batchLength = quantiles{20, 28, 36, 52, 68, 84, 100, 116, 132, 148, 164, 172, 178, 180, 180}
