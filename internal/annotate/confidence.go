package annotate

// A calibrationRow counts the labelled tools with a lead from Lead to that of the next row, and how many of their suggestions were right.
type calibrationRow struct{ Lead, Tools, Right int }

// calibration is measured on the labelled tools. A suggestion is right if verb and resource are both acceptable. TestTheCalibrationIsWhatTheLabelsSay compares the
// table with the labels.
var calibration = []calibrationRow{
	{0, 28, 23},
	{60, 44, 39},
	{70, 83, 83},
}

// Share returns the share of right suggestions in hundredths, as the rule of succession estimates it: 83 right ones of 83 do not show that all are right.
func (r *calibrationRow) Share() int { return 100 * (r.Right + 1) / (r.Tools + 2) }

// confidenceOf returns the confidence of a suggestion by its lead. Where signs contradict each other, the lead says little: there are too few such tools to measure,
// so the suggestion is in the first row.
func confidenceOf(lead int, contradicted bool) int {
	share := calibration[0].Share()
	for i := range calibration {
		if r := &calibration[i]; lead >= r.Lead && !contradicted {
			share = r.Share()
		}
	}
	return share
}
