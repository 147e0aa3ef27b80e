package contract

import "github.com/dispatcherd/dispatcherd"

// RowNotification is what a notification says about a row. It is a hint: any session may notify, and the row may
// have changed or be gone. It says nothing about other rows.
type RowNotification struct {
	Type     string
	Priority dispatcherd.Priority
	Class    dispatcherd.DurationClass
	Key      Key
}

// Notification says which rows became pending; without rows, any may have.
type Notification struct {
	Rows     []RowNotification
	Admitted bool // the rows have keys, and have got their permits; otherwise there is one row, and its transaction inserted no other
}
