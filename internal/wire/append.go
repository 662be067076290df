package wire

import "strconv"

// The functions of this file append whole messages. Ids, params, results and
// objects are JSON already; nobody checks them again.

const version = `{"jsonrpc":"2.0"`

// AppendRequest appends a request. Without params it has none.
func AppendRequest(dst, id []byte, method string, params []byte) []byte {
	dst = append(append(dst, version+`,"id":`...), id...)
	return appendCall(dst, method, params)
}

// AppendNotification appends a notification. Without params it has none.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	return appendCall(append(dst, version...), method, params)
}

func appendCall(dst []byte, method string, params []byte) []byte {
	dst = AppendString(append(dst, `,"method":`...), method)
	if len(params) > 0 {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// AppendResult appends the response that carries the result.
func AppendResult(dst, id, result []byte) []byte {
	dst = appendID(dst, id)
	dst = append(append(dst, `,"result":`...), result...)
	return append(dst, '}')
}

// AppendError appends the response that carries an error. A nil id is null, for
// a message that had none or none that could be read; nil data is left out.
func AppendError(dst, id []byte, code int, message string, data []byte) []byte {
	dst = append(appendID(dst, id), `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = AppendString(append(dst, `,"message":`...), message)
	if len(data) > 0 {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// AppendErrorObject appends the response that carries an error object as it is.
func AppendErrorObject(dst, id, object []byte) []byte {
	dst = append(append(appendID(dst, id), `,"error":`...), object...)
	return append(dst, '}')
}

func appendID(dst, id []byte) []byte {
	dst = append(dst, version+`,"id":`...)
	if len(id) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, id...)
}
