package approval

// LimitKept makes k keep at most n requests of a tenant. The index of 1000 requests is read and written for each new one, which takes minutes with the race detector.
func LimitKept(k *Keeper, n int) { k.room = n }
