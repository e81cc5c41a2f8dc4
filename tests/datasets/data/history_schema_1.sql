BEGIN TRANSACTION;
CREATE TABLE environments (
	identity VARCHAR NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (identity)
);
INSERT INTO "environments" VALUES('25f1f7e3614a27cc','{"backend":"onnxruntime","backend_version":"1.0","device":"some CPU","tuner_version":"","driver":"","host":"","system":"","versions":{},"numbers":{"cores":2.0}}');
CREATE TABLE graphs (
	fingerprint VARCHAR NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (fingerprint)
);
INSERT INTO "graphs" VALUES('8d60608227fb94595533c4bf9e2ed6be','{"opset":18,"inputs":[0],"outputs":[2],"tensors":[[[1,4],"float32",0],[[1,4],"float32",0],[[1,4],"float32",0]],"nodes":[["Relu","layer0",[0],[1],{"k":[1,2],"a":0.5,"m":"x"},4.0,32.0,0],["Relu","layer1",[1],[2],{"k":[1,2],"a":0.5,"m":"x"},4.0,32.0,0]]}');
CREATE TABLE measurements (
	number INTEGER NOT NULL, 
	identity VARCHAR NOT NULL, 
	fingerprint VARCHAR NOT NULL, 
	environment VARCHAR NOT NULL, 
	run VARCHAR NOT NULL, 
	family VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	route TEXT NOT NULL, 
	created VARCHAR NOT NULL, 
	ratio FLOAT, 
	content TEXT NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (identity)
);
INSERT INTO "measurements" VALUES(1,'00000000000000000000000000000000','8d60608227fb94595533c4bf9e2ed6be','25f1f7e3614a27cc','old','cnn','net0','ok','session.threads=0','2026-01-01T00:00:00.000+00:00',6.66666666666666629659e-01,'{"fingerprint":"8d60608227fb94595533c4bf9e2ed6be","route":"session.threads=0","environment":"25f1f7e3614a27cc","status":"ok","model":"net0","family":"cnn","purpose":"explore","latency_ms":1.0,"default_ms":1.5,"ratio":0.6666666666666666,"ratio_low":null,"ratio_high":null,"blocks_ms":[1.0,1.25],"default_blocks_ms":[1.5,1.75],"accuracy":{"cos":1e-09,"l1":0.1},"build_seconds":null,"load_seconds":null,"engine_bytes":1099511627776,"engine_hash":"abababababababababababababababababababababababababababababababab","peak_bytes":null,"device_state":{},"local_profile":[{"name":"layer0","op":"Relu","ms":0.0,"node":0},{"name":"layer1","op":"Relu","ms":0.25,"node":1}],"message":"","created":"2026-01-01T00:00:00.000+00:00","run":"old","identity":"00000000000000000000000000000000"}');
INSERT INTO "measurements" VALUES(2,'00000000000000000000000000000001','8d60608227fb94595533c4bf9e2ed6be','25f1f7e3614a27cc','old','transformer','net1','ok','session.threads=1','2026-01-02T00:00:00.000+00:00',7.61904761904761862467e-01,'{"fingerprint":"8d60608227fb94595533c4bf9e2ed6be","route":"session.threads=1","environment":"25f1f7e3614a27cc","status":"ok","model":"net1","family":"transformer","purpose":"explore","latency_ms":1.1428571428571428,"default_ms":1.5,"ratio":0.7619047619047619,"ratio_low":null,"ratio_high":null,"blocks_ms":[1.0,1.25],"default_blocks_ms":[1.5,1.75],"accuracy":{"cos":1e-09,"l1":0.1},"build_seconds":null,"load_seconds":null,"engine_bytes":1099511627776,"engine_hash":"abababababababababababababababababababababababababababababababab","peak_bytes":null,"device_state":{},"local_profile":[{"name":"layer0","op":"Relu","ms":0.0,"node":0},{"name":"layer1","op":"Relu","ms":0.25,"node":1}],"message":"","created":"2026-01-02T00:00:00.000+00:00","run":"old","identity":"00000000000000000000000000000001"}');
INSERT INTO "measurements" VALUES(3,'00000000000000000000000000000002','8d60608227fb94595533c4bf9e2ed6be','25f1f7e3614a27cc','old','cnn','net0','build_failed','session.threads=2','2026-01-03T00:00:00.000+00:00',NULL,'{"fingerprint":"8d60608227fb94595533c4bf9e2ed6be","route":"session.threads=2","environment":"25f1f7e3614a27cc","status":"build_failed","model":"net0","family":"cnn","purpose":"explore","latency_ms":null,"default_ms":null,"ratio":null,"ratio_low":null,"ratio_high":null,"blocks_ms":[],"default_blocks_ms":[],"accuracy":{},"build_seconds":null,"load_seconds":null,"engine_bytes":null,"engine_hash":"","peak_bytes":null,"device_state":{},"local_profile":[],"message":"the builder said no","created":"2026-01-03T00:00:00.000+00:00","run":"old","identity":"00000000000000000000000000000002"}');
CREATE TABLE routecast (
	"key" VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "routecast" VALUES('schema','1');
CREATE INDEX ix_measurements_environment ON measurements (environment);
CREATE INDEX measurements_known ON measurements (fingerprint, environment, route);
CREATE INDEX ix_measurements_family ON measurements (family);
CREATE INDEX ix_measurements_run ON measurements (run);
COMMIT;
