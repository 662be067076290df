package memory

// NoteLatency counts one latency.
func NoteLatency(l *Latency, micros int64) { l.note(micros) }
