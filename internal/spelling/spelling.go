// Package spelling compares names that users type with those that exist.
package spelling

// Edits returns the number of insertions, deletions, replacements and exchanges of neighbours, in bytes, that make a to b.
func Edits(a, b string) int {
	older, last := make([]int, len(b)+1), make([]int, len(b)+1) // of the prefixes of a that are 2 and 1 bytes shorter
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			substitute := last[j]
			if a[i] != b[j] {
				substitute++
			}
			row[j+1] = min(substitute, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, last = last, row
	}
	return last[len(b)]
}
