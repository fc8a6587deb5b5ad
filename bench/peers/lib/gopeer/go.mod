module tws.test/gopeer

go 1.26
