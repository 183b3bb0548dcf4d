#!/bin/sh
# Starts the program of a container. `spark-master` and `spark-worker URL` start parts of a standalone
# cluster, `executor` starts an executor for Spark on Kubernetes. Anything else is run as a command.
set -eu

case ${1:-} in
spark-master)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master \
        --host "$(hostname)" --port 7077 --webui-port 8080
    ;;
spark-worker)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker \
        --webui-port 8081 "$2"
    ;;
executor)
    # Spark passes Java options as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ..., one argument each.
    set --
    number=0
    while option=$(printenv "SPARK_JAVA_OPT_$number"); do
        set -- "$@" "$option"
        number=$((number + 1))
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
