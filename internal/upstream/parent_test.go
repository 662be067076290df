package upstream

func parent() {}
