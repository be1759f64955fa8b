-- XML, as it was written.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, x xml, many xml[]);
INSERT INTO t VALUES (1, '<a b="1">ü</a>', '{<a/>}');
-- workload
INSERT INTO t VALUES (2, '<?xml version="1.0"?><a/>', NULL), (3, 'only a <b>piece</b>', '{}');
UPDATE t SET x = NULL WHERE id = 1;
-- wait
UPDATE t SET id = 4 WHERE id = 3;
