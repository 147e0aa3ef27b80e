package dispatcherd

// Announcement is what a notification says of the one row that its transaction
// made pending. It is a hint: anybody may notify, and the row may have changed
// or be gone. It says nothing of other rows.
type Announcement struct {
	Type     string
	Priority Priority
	Key      Key
}
