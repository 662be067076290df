package wire

import "strconv"

// The functions of this file append whole messages. The ids, params, results and objects that they get must be valid
// JSON; they are not checked again.

const messageStart = `{"jsonrpc":"2.0"`

// AppendRequest appends a request. If params is empty, the request has no params.
func AppendRequest(dst, id []byte, method string, params []byte) []byte {
	dst = append(append(dst, messageStart+`,"id":`...), id...)
	return appendCall(dst, method, params)
}

// AppendRequestWith is like AppendRequest, with the params that appendParams appends. It saves a copy of them.
func AppendRequestWith(dst, id []byte, method string, appendParams func(dst []byte) []byte) []byte {
	dst = append(append(dst, messageStart+`,"id":`...), id...)
	dst = AppendString(append(dst, `,"method":`...), method)
	const member = `,"params":`
	before := len(dst)
	dst = appendParams(append(dst, member...))
	if len(dst) == before+len(member) { // there are no params
		dst = dst[:before]
	}
	return append(dst, '}')
}

// AppendNotification appends a notification. If params is empty, it has no params.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	return appendCall(append(dst, messageStart...), method, params)
}

func appendCall(dst []byte, method string, params []byte) []byte {
	dst = AppendString(append(dst, `,"method":`...), method)
	if len(params) > 0 {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// AppendResult appends a response with the result.
func AppendResult(dst, id, result []byte) []byte {
	dst = appendID(dst, id)
	dst = append(append(dst, `,"result":`...), result...)
	return append(dst, '}')
}

// AppendError appends a response with an error. A nil id is written as null, for a message without a readable id. If
// data is empty, it is left out.
func AppendError(dst, id []byte, code int, message string, data []byte) []byte {
	dst = append(appendID(dst, id), `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = AppendString(append(dst, `,"message":`...), message)
	if len(data) > 0 {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// AppendErrorObject appends a response with the given error object.
func AppendErrorObject(dst, id, object []byte) []byte {
	dst = append(append(appendID(dst, id), `,"error":`...), object...)
	return append(dst, '}')
}

func appendID(dst, id []byte) []byte {
	dst = append(dst, messageStart+`,"id":`...)
	if len(id) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, id...)
}
