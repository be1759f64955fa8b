-- replicate loaded
-- setup
CREATE TABLE loaded (id int PRIMARY KEY, v text DEFAULT 'default', w text DEFAULT 'other');
INSERT INTO loaded SELECT g, 'copied' FROM generate_series(1, 10) g;
-- workload
COPY loaded (id) FROM PROGRAM 'seq 100 3000';

BEGIN;
COPY loaded (id, v) FROM PROGRAM 'printf ''5000\ttab\\ttab\n5001\t\\N\n5002\t\n''';
UPDATE loaded SET w = 'changed' WHERE id = 5000;
COMMIT;
-- wait
BEGIN;
COPY loaded (id) FROM PROGRAM 'seq 10000 12000';
ROLLBACK;

BEGIN;
TRUNCATE loaded;
COPY loaded (id) FROM PROGRAM 'seq 1 500';
COMMIT;
