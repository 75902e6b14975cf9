package paper
func distributionFigures() []Figure {return nil}
func srlbFigures() []Figure {return nil}
func twoServers() []Figure {return nil}
func hlbFigures() []Figure {return nil}
func weightFigures() []Figure {return nil}
func sensitivityFigures() []Figure {return nil}
func changeFigures() []Figure {return nil}
func ourFigures() []Figure {return nil}
