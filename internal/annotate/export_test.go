package annotate

// CalibrationRow and Calibration are the table of confidences.
type CalibrationRow = calibrationRow

var Calibration = calibration
