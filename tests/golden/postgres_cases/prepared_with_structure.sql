-- Prepared transactions change structures, write tables anew and make some, while another table is written.
-- replicate t
-- replicate other
-- setup
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE other (id int PRIMARY KEY);
-- workload
BEGIN;
INSERT INTO t VALUES (5);
ALTER TABLE t ADD COLUMN data text;
INSERT INTO t VALUES (6, 'new column');
PREPARE TRANSACTION 'prepared_with_structure 1';

INSERT INTO other VALUES (7);
-- session b
COMMIT PREPARED 'prepared_with_structure 1';
-- session a
INSERT INTO t VALUES (8);
INSERT INTO other VALUES (9);
-- wait
BEGIN;
INSERT INTO t VALUES (10, 'before');
CLUSTER t USING t_pkey;
INSERT INTO t VALUES (11, 'behind');
PREPARE TRANSACTION 'prepared_with_structure 2';

INSERT INTO other VALUES (12);
-- session b
COMMIT PREPARED 'prepared_with_structure 2';
-- session a
BEGIN;
CREATE TABLE made (a int);
INSERT INTO made VALUES (1);
INSERT INTO t VALUES (13, 'beside');
SAVEPOINT part;
INSERT INTO made VALUES (2);
INSERT INTO t VALUES (14, 'undone');
ROLLBACK TO SAVEPOINT part;
PREPARE TRANSACTION 'prepared_with_structure 3';

COMMIT PREPARED 'prepared_with_structure 3';

DROP TABLE made;

BEGIN;
ALTER TABLE t DROP COLUMN data;
INSERT INTO t VALUES (15);
PREPARE TRANSACTION 'prepared_with_structure 4';

INSERT INTO other VALUES (16);
-- session b
ROLLBACK PREPARED 'prepared_with_structure 4';
-- session a
INSERT INTO t VALUES (17, 'still there');
